from stf.kernels.builders cimport KernelBuilder, make_builder
