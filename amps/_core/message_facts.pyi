"""Facts about messages of records, for compiled code only; see message_facts.pyx."""
