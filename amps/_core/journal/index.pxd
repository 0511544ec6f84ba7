# The index of one journal file. It is in shared memory while the journal is written, then in a file beside the journal.
# See journal/bookmark_index.pxi.

from libc.stdint cimport uint32_t, uint64_t


cdef enum:
    INDEX_VERSION = 2
    INDEX_BLOCK_BYTES = 65536          # journal bytes per block of the index
    INDEX_ENTRIES_PER_BLOCK_MAX = 32   # publishers listed per block; with more, the block has a flag
    INDEX_HEADER_BYTES = 136
    # Flags of a block.
    INDEX_BLOCK_OVERFLOW = 1           # more publishers than entries, the block itself must be read
    INDEX_BLOCK_ENTRANCE = 2           # reading may begin there: it does not begin within a transaction


cdef packed struct IndexHeader:
    char magic[8]                  # "AMPSOIDX"
    uint32_t version               # 2
    uint32_t checksum              # CRC32C of bytes 16 to the end; 0 while the journal is being written
    uint64_t file_number           # of the journal
    uint64_t start_position
    uint64_t block_capacity
    uint64_t entry_capacity
    uint64_t block_count           # published last: readers use only the blocks below it
    uint64_t entry_count
    uint64_t last_topic_offset     # file offset of the newest topic record, 0 = none; they are chained backwards
    uint64_t end_offset            # file offset up to which records are indexed
    uint64_t first_txid
    uint64_t last_txid
    uint64_t first_timestamp_ns
    uint64_t last_timestamp_ns
    uint64_t publisher_count       # summary entries after the entries (closed files only)
    uint64_t last_name_offset      # file offset of the newest name record, 0 = none; they are chained backwards


cdef packed struct IndexBlock:
    uint64_t offset                # file offset of the first record that starts in the block
    uint64_t txid                  # of that record
    uint64_t timestamp_ns          # of that record
    uint32_t first_entry           # number of its first publisher entry
    uint32_t flags                 # INDEX_BLOCK_...; an index of an earlier release has no entrances


cdef packed struct IndexEntry:
    uint64_t publisher_id
    uint64_t first_sequence        # lowest and highest sequence of that publisher in that block
    uint64_t last_sequence
    uint32_t block
    uint32_t unused


cdef packed struct PublisherSummary:
    uint64_t publisher_id
    uint64_t first_sequence        # 0: its sequences began anew in this file, so they are not in order
    uint64_t last_sequence
    uint64_t last_timestamp_ns
