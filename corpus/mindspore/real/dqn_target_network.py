"""DQN on a small grid: replay memory, a target network that is copied by hand, epsilon-greedy actions."""

from collections import deque
import copy
import random

from fingerprint import report
import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

SIZE, ACTIONS = 5, 4


class Grid:
    """Walk to the corner; every step costs a little."""

    def reset(self):
        self.at = [random.randrange(SIZE), random.randrange(SIZE - 1)]
        self.steps = 0
        return self.state()

    def state(self):
        return np.array([self.at[0] / SIZE, self.at[1] / SIZE, 1.0], np.float32)

    def step(self, action):
        row, column = [(0, 1), (0, -1), (1, 0), (-1, 0)][action]
        self.at = [min(max(self.at[0] + row, 0), SIZE - 1), min(max(self.at[1] + column, 0), SIZE - 1)]
        self.steps += 1
        done = self.at == [SIZE - 1, SIZE - 1]
        return self.state(), (1.0 if done else -0.02), done or self.steps == 30


class QNet(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Dense(3, 32), nn.Dense(32, 32), nn.Dense(32, ACTIONS)

    def construct(self, s):
        return self.fc3(ops.relu(self.fc2(ops.relu(self.fc1(s)))))


class Agent:
    def __init__(self):
        self.policy = QNet()
        self.target = copy.deepcopy(self.policy)
        self.target.set_train(False)
        self.memory = deque(maxlen=1000)
        self.optimizer = nn.Adam(self.policy.trainable_params(), 2e-3)
        self.grad = ms.value_and_grad(self.loss, None, self.optimizer.parameters)

    def loss(self, state, action, wanted):
        taken = ops.gather_elements(self.policy(state), 1, action)
        return nn.SmoothL1Loss(reduction="mean")(taken, wanted)

    def act(self, state, epsilon):
        if random.random() < epsilon:
            return random.randrange(ACTIONS)
        return int(self.policy(Tensor(state[None])).argmax(1)[0])

    def learn(self):
        batch = random.sample(self.memory, 32)
        state, action, reward, following, done = (np.array(column) for column in zip(*batch))
        best = self.target(Tensor(following)).max(axis=1).asnumpy()
        wanted = (reward + 0.95 * best * (1 - done)).astype(np.float32)
        loss, grads = self.grad(Tensor(state), Tensor(action[:, None], ms.int32), Tensor(wanted[:, None]))
        self.optimizer(grads)
        return float(loss)

    def update_target(self):
        for ours, theirs in zip(self.target.get_parameters(), self.policy.get_parameters()):
            ops.assign(ours, theirs)


env, agent, learnt = Grid(), Agent(), 0
for episode in range(25):
    state, total, done = env.reset(), 0.0, False
    while not done:
        action = agent.act(state, max(0.1, 1 - episode / 15))
        following, reward, done = env.step(action)
        agent.memory.append((state, action, reward, following, float(done)))
        state, total = following, total + reward
        if len(agent.memory) >= 64:
            loss = agent.learn()
            learnt += 1
            if learnt % 20 == 0:
                agent.update_target()
    if episode % 6 == 0:
        print(f"episode {episode} reward {total:.3f}")
print("learnt", learnt)
report(agent.policy, agent.target, agent.optimizer)
