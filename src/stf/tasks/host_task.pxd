from stf.tasks.bodies cimport submit_body
from stf.tasks.task cimport Task

cdef class HostLaunch:
    cdef Task task
    cdef tuple extra
