from stf.bodies cimport submit_body
from stf.tasks cimport Task

cdef class HostLaunch:
    cdef Task task
    cdef tuple extra
