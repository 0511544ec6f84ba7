# The rules by which a publish to a SOW topic becomes a record: its key, its lifetime, its size (sow.md §§3, 5, D5,
# D25).

cdef class SowRules:

    def __init__(
        self, KeyMaker keys not None, Documents documents, bint given_keys, uint64_t payload_max, uint64_t lifetime_ns,
        uint32_t number, FieldStage preprocessing=None, bint generated_keys=False, bint is_enriched=False,
    ):
        """given_keys: every publish must have a `sow_key`. lifetime_ns: 0 = values without a lifetime do not expire.
        preprocessing: computes fields before the key is made. generated_keys: the core makes the keys. is_enriched: the
        core computes fields.
        """
        self.keys = keys
        self.documents = documents
        self.given_keys = given_keys
        self.payload_max = payload_max
        self.lifetime_ns = lifetime_ns
        self.number = number
        self.preprocessing = preprocessing
        self.generated_keys = generated_keys
        self.is_enriched = is_enriched
        self.text = ByteBuffer()
        self.merged = ByteBuffer()

    cdef bint is_readable(self, const uint8_t* payload, uint64_t length) except -1:
        """Whether a message can be read as a whole, so that the core can merge it or compute fields of it."""
        if self.documents is None:
            return True
        self.merged.length = 0
        return self.documents.merge(payload, length, payload, length, self.merged)
