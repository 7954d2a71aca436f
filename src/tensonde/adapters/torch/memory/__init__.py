"""What takes memory in a step, tensor by tensor: for `tensonde check --memory` and for a device that has none left."""
