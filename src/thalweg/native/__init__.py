"""The native kernel: training and prediction of built-in nets in C, behind ctypes.

`library` finds and loads the library for this processor, `program` translates a net for it, and
`trainer` trains clients with it in threads. Nothing here imports torch.
"""
