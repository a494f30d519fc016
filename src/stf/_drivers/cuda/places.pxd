from cuda.bindings cimport cydriver as cu
from libc.stdint cimport int64_t
from stf._drivers.cuda.streams cimport DeviceStream

cdef DeviceStream adopt_stream(int index, int device, int64_t pointer, str place)
cdef DeviceStream make_stream(int index, int device, cu.CUcontext context, str place)
