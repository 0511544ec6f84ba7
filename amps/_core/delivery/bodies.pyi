from amps._core.values.documents import Documents, Selection

class Bodies:
    def __init__(self, documents: Documents | None, selection: Selection | None = None) -> None: ...
