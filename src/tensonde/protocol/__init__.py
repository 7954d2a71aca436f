"""How the hub, the agents in trainings and the clients talk: typed messages, codec, the one client."""
