"""Three steps, for the dumps: `tensonde run --dump-config dump.json train.py`, synchronous or asynchronous as the JSON says.

The dump blocks of seed 004; the iteration is a string in MindSpore 2.10.
"""

from small import model, samples

net, trained = model()
net.set_train()
trained.train(1, samples(24), dataset_sink_mode=False)
print("three steps")
