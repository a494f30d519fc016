from stf._engine.engine cimport Engine
from stf.tasks.bodies cimport make_body
from stf.tasks.running cimport begin_body, submit, submit_body, take_back
from stf.tasks.task cimport Task, body_of, keep_body
from stf.tasks.views cimport views_of, without_tokens

cdef class HostLaunch:
    cdef Task task
    cdef tuple extra
