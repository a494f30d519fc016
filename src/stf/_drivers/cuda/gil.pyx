"""The GIL and calls into CUDA.

A graph may call a body on the host (`cuda_host_nodes`), which needs the GIL; a thread that holds it while CUDA makes it
wait would hold up the body, and so CUDA. So `host_nodes` counts the nodes that there are in this process: while there
are any, calls that may wait are done by the submitting thread, or let go of the GIL (`call`, in the .pxd).
"""

host_nodes = 0
