"""Digests of tensors that are not in CPU memory, without waiting for the device.

`DeviceDigests` is what the rest of the adapter knows. What it is given is reduced on the device, in the stream that is current: by Triton's kernels
(`kernels`, `fused`) where there are any, else by a fixed number of torch's own ops over a buffer into which small tensors are copied (`staging`). At the
end of a step one copy to pinned memory is begun (`parcels`); the rows are made when it has arrived (`folding`).
"""
