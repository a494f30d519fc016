"""Places, as the engine knows them; compiled."""

NO_PLACE: int

class Place:
    number: int
    name: str
    ordinal: int
    memory: int
    functions: int
    enqueues: bool
    is_callers_stream: bool
    kind: str
    rank: int
    def __init__(
        self,
        number: int,
        name: str,
        ordinal: int,
        memory: int,
        functions: int = 0,
        is_callers_stream: bool = False,
        kind: str = "",
        rank: int = 0,
    ) -> None: ...
