"""Explanations of events of the transaction log, replays, security, actions, queues and the end (1D to FF)."""

from collections.abc import Mapping

from amps.cli.explain.advice import Advice

LOG_EVENTS: Mapping[str, Advice] = {
    "1D-0001": Advice("The transaction log was opened, and its state recovered."),
    "1D-0002": Advice(
        "The transaction log cannot be opened: the directory is missing or not writable, another server uses it, or a "
        "journal is damaged.",
        "Read the reason. 'amps journal verify DIRECTORY' finds damage; mount missing file systems.",
    ),
    "1D-0003": Advice(
        "Writing to the transaction log failed, so nothing more is acknowledged.",
        "Check the device of JournalDirectory. After that start again: unacknowledged messages are sent again.",
    ),
    "1D-0004": Advice(
        "A file that only speeds up the start is missing or damaged. It is made again from the journal, which takes "
        "longer.",
        "None, unless it is repeated: then check the device.",
    ),
    "1D-0005": Advice(
        "The server was killed, or the host lost power, while it wrote. The unfinished end was never acknowledged.",
        "None: publishers send these messages again.",
    ),
    "1D-0006": Advice("The server was killed while it prepared a new journal."),
    "1D-0007": Advice(
        "The directory has no journals although it had some: they were removed, or another file system is mounted.",
        "If that was not intended, stop the server at once and bring the journals back.",
    ),
    "1D-0008": Advice(
        "A new journal was needed before it was prepared: the device is slow, or JournalSize is small for the rate.",
        "Use a larger JournalSize or a faster device.",
    ),
    "1D-0009": Advice("The server began to write to a new journal."),
    "1D-0010": Advice(
        "A journal is damaged or its device fails. Requests that need this place are refused.",
        "Run 'amps journal verify'. Restore the file from a copy; check the device.",
    ),
    "1D-0011": Advice(
        "An earlier server still ends and holds the directory.", "Wait; end the other one if it hangs."
    ),
    "1D-0012": Advice("A file that only speeds up the start cannot be used.", "None, unless it is repeated."),
    "1D-0013": Advice("The server reads a journal at its start; the record shows the progress."),
    "1D-0014": Advice("A copy of a journal was left by an interrupted move or compression."),
    "1D-0015": Advice(
        "Publishers were silent for longer than InactiveClientAckExpiration, so their sequences are forgotten.",
        "If they may send old messages again after such a time, make InactiveClientAckExpiration longer.",
    ),
    "1D-0016": Advice(
        "A journal in use was deleted by a person or a program. The server restored it from its open file.",
        "Find out what deletes files in JournalDirectory. Use actions or 'amps journal remove' to remove journals.",
    ),
    "1D-0017": Advice(
        "A file of the log is missing: removed, moved, or its file system is not mounted.",
        "Put it back. Until then requests that need it are refused; others work.",
    ),
    "1D-0018": Advice("A missing file of the log is there again."),
    "1D-0019": Advice(
        "A removed journal could not be copied back, because the device has no room or fails.",
        "Make room; copy the journal from a backup before the server stops.",
    ),
    "1D-0020": Advice(
        "The index of a journal is damaged; bookmarks are found more slowly.", "None: it is remade."
    ),
    "1D-0021": Advice(
        "Old journals are missing that the server did not remove: the archive is not mounted, or they were deleted.",
        "Mount the archive and start again, or confirm the removal with the command in the text.",
    ),
    "1D-0022": Advice("An unused journal is removed and will be made again."),
    "1D-0023": Advice(
        "The file system of the journals is nearly full. When it is full, publishers are refused.",
        "Make room; archive, compress or remove journals earlier by an action.",
    ),
    "1D-0024": Advice("The file system of the journals has room again; this ends the state of 1D-0023."),
    "1D-0025": Advice(
        "A journal was deleted while the server did not have it open. Its messages are lost.",
        "Restore it from a backup; find out what deletes files in JournalDirectory.",
    ),
    "1D-0026": Advice(
        "The file with the identity of the log cannot be used. A new one is made; nothing is lost."
    ),
    "1E-0001": Advice(
        "A destination is connected: this instance sends it what it lacks, then each new message."
    ),
    "1E-0002": Advice(
        "The connection to a destination ended; the text has the reason. Connecting begins again at once.",
        "If the reason is LOST, look at the other instance and the network. Publishers wait if it is sync.",
    ),
    "1E-0003": Advice(
        "The configurations of the two instances do not fit together, so this destination gets nothing.",
        "Change what the text names on one of the instances, or exclude the check with ExcludeValidation.",
    ),
    "1E-0004": Advice(
        "A destination gets what it lacks, beginning behind the transaction that the text names."
    ),
    "1E-0005": Advice("A destination has been sent everything that it lacked."),
    "1E-0006": Advice(
        "A destination lacks messages of journals that were removed here. It never gets them from this instance.",
        "Compare the two instances. Keep journals for longer than instances may be away.",
    ),
    "1E-0007": Advice(
        "A message that came by replication was not taken, most often for lack of a permission. The flow goes on.",
        "Give the user of the other instance the permission for the topic, or leave the topic out of its destination.",
    ),
    "1E-0008": Advice(
        "Another instance does not send here, because the two configurations do not fit together.",
        "Read the records 1E-0003 of that instance.",
    ),
    "1E-0009": Advice("Another instance has sent everything that was missing here."),
    "1E-0010": Advice(
        "The other instance refuses the connection of a destination; the text has its reason.",
        "WRONG_PEER, SELF, DUP_NAME: correct the destination or the names. AUTH, ENTITLEMENT: correct the credentials "
        "or the permissions there. DUPLICATE_LINK: two destinations lead to one instance. STORAGE: make room there.",
    ),
    "1E-0011": Advice(
        "A destination cannot be connected; the text has the reason. It is tried again and again.",
        "Start the other instance, or correct the address. The reason is logged again only when it changes.",
    ),
    "1E-0012": Advice("Another instance has connected and sends its messages here."),
    "1E-0013": Advice("The state of destinations cannot be read; each destination is asked what it has."),
    "1E-0014": Advice(
        "The state of destinations cannot be stored. Nothing is lost.",
        "Make room on the device of JournalDirectory.",
    ),
    "1E-0015": Advice(
        "A connection to the replication transport was refused; the text has the reason.",
        "If it is no instance of yours, keep the port from strangers. Otherwise correct what the reason names.",
    ),
    "1E-0016": Advice("Another instance does not send here any more; it connects again by itself."),
    "1E-0017": Advice(
        "An action downgraded a destination: publishers do not wait for it any more, and must not fail over to it.",
        "Bring the destination back; an action or an operator upgrades it when it has caught up.",
    ),
    "1E-0018": Advice(
        "An operator downgraded a destination; it stays so until it is upgraded or the server restarts."
    ),
    "1E-0019": Advice("A destination is sync again: publishers wait for it."),
    "1E-0020": Advice(
        "The log cannot be read, so a destination gets no more messages, and its journals are kept.",
        "Bring the file back that the text names, or repair its device.",
    ),
    "1E-0021": Advice(
        "Another instance has messages of this instance that its own log lacks: the storage lost what it confirmed, "
        "or an older copy of the journals was put in place.",
        "Check the storage. The other instances keep the messages, and send them back where they may.",
    ),
    "1E-0022": Advice(
        "The core refused a record of another instance as malformed.",
        "Run the same version of the server on both instances. If they do, report the record.",
    ),
    "1F-0004": Advice("A client logged on; the record has its name, version and last sequences."),
    "21-0001": Advice("The replay of a bookmark subscription began."),
    "21-0002": Advice("A replay has caught up; new messages follow."),
    "21-0003": Advice("A replay of a range or a number of messages is complete."),
    "21-0004": Advice(
        "A topic index is not complete yet; replays read whole journals meanwhile and are slower."
    ),
    "21-0005": Advice(
        "A topic index is damaged; replays are slower.", "Remove the file of the text, and restart."
    ),
    "23-0001": Advice(
        "A client asked for a replay from a bookmark that is not in the log: its journal was removed, or it is of "
        "another server.",
        "Let the client choose by bookmark_not_found where to begin; keep journals for longer.",
    ),
    "25-0001": Advice(
        "A user gave a wrong password, or the authentication module refused the user.",
        "Check the user's name and password, and the module's settings.",
    ),
    "25-0002": Advice(
        "A user lacks the permission for a topic or a resource.",
        "Grant it in the entitlement module, or correct the topic of the client.",
    ),
    "25-0003": Advice(
        "Authentication was switched, by an action or a signal.",
        "If it is disabled without your intention, switch it on again (SIGUSR2) and find out who sent the signal.",
    ),
    "25-0004": Advice(
        "Entitlement was switched, by an action or a signal.",
        "If it is disabled without your intention, switch it on again (SIGUSR2) and find out who sent the signal.",
    ),
    "29-0001": Advice("The text of an action of the configuration."),
    "29-0002": Advice(
        "A step of an action failed; the steps after it did not run.",
        "Read the reason, and correct the element at the place in the configuration that the text names.",
    ),
    "29-0003": Advice("An action begins."),
    "29-0004": Advice("An action chose these journals."),
    "29-0005": Advice(
        "A command that an action started runs for a long time; later steps wait for it.",
        "Look for the process. Give the command a limit of its own, or run it in the background.",
    ),
    "29-0006": Advice(
        "Actions of an event take longer than the time between its occurrences, so one was skipped.",
        "Make the actions shorter or the event rarer.",
    ),
    "29-0007": Advice("Actions wait for the reason that the text names, and continue by themselves."),
    "29-0008": Advice(
        "A message that actions need cannot be read from the log: its journal is damaged or missing.",
        "Restore the journal; see 1D-0010 and 1D-0017.",
    ),
    "29-0009": Advice(
        "The log cannot be read, so actions on messages wait.", "Look at the records of category 1D."
    ),
    "29-0010": Advice("A remark of an action; the text describes it.", "Read the text."),
    "29-0011": Advice(
        "Messages of topics that are not recorded came faster than actions on them were looked for.",
        "Record the topics, or give the server more processors.",
    ),
    "2C-0003": Advice(
        "The next journal cannot be prepared: the device is full or not writable.",
        "Make room before the current journal is full.",
    ),
    "2C-0004": Advice("The index of a journal cannot be written.", "Make room; the next start rebuilds it."),
    "2C-0005": Advice("A journal was moved to the archive."),
    "2C-0006": Advice("A journal was compressed."),
    "2C-0007": Advice("A journal was removed, by an action or an operation."),
    "2C-0008": Advice("A journal is still needed and is removed later; the text has the reason."),
    "2C-0009": Advice(
        "A journal cannot be archived, compressed or removed.",
        "Read the reason: permissions, or no room in the archive.",
    ),
    "2C-0010": Advice("A file that speeds up the start cannot be written.", "Make room; nothing is lost."),
    "2C-0011": Advice(
        "The log has no room: publishes to recorded topics are refused with tx store failed.",
        "Make room on the device of JournalDirectory. The server tries again every second.",
    ),
    "2C-0012": Advice("The log has room again; this ends the state of 2C-0011."),
    "2C-0013": Advice("A topic index cannot be written; replays are slower.", "Make room; nothing is lost."),
    "2C-0014": Advice(
        "Journals cannot be removed, because a destination of replication has not acknowledged them.",
        "Bring that instance back, or take its Destination out of the configuration and restart.",
    ),
    "30-0000": Advice(
        "A thread of the server has made no progress: the host is overloaded or suspended, or there is a defect.",
        "Check load and memory of the host. If it happens without load, report it.",
    ),
    "30-0001": Advice(
        "A write to the disk takes very long, and acknowledgements wait for it.",
        "Check the device of JournalDirectory; 'amps storage-test' measures it.",
    ),
    "30-0002": Advice("A thread works again; this ends the state of 30-0000 or 30-0001."),
    "30-0003": Advice(
        "A process made no progress for so long that it was killed; it is started again.",
        "See 30-0000. Its clients are disconnected and must reconnect.",
    ),
    "31-0001": Advice("The queues are recovered; the text has the number of their messages and the time."),
    "31-0002": Advice("The queues are rebuilt from the log; the text shows the progress."),
    "31-0003": Advice(
        "The queues hold as many messages as their memory allows, so messages for queues are refused.",
        "Acknowledge or expire messages, or make room where the text says.",
    ),
    "31-0004": Advice(
        "The cache of the queues cannot be written: its device is full or not writable.",
        "Make room. Nothing is lost; the next start takes longer.",
    ),
    "31-0005": Advice(
        "The cache of the queues is damaged, or is of other journals. The queues are rebuilt from the log.",
        "None, unless it is repeated: then check the device.",
    ),
    "31-0006": Advice(
        "The RecoveryPoint of a new queue is not in the log, so the queue begins with all of the log.",
        "Correct RecoveryPoint if the queue should begin later, before consumers get the old messages.",
    ),
    "31-0007": Advice(
        "The rules of a queue were changed in the configuration, so it is made again from the log."
    ),
    "31-0010": Advice("The state of all queues, requested in the administration interface."),
    "32-0001": Advice("The state of the SOW topics was read at the start; it says how long that took."),
    "32-0002": Advice(
        "The file of a SOW topic belongs to another definition of it, or is incomplete. It was renamed.",
        "Restore the former definition if its values are needed, or publish them again.",
    ),
    "32-0003": Advice("Progress of a start that builds the SOW topics again from the log."),
    "32-0004": Advice(
        "A file of a SOW topic cannot be written. Journals that are to be removed stay until it can.",
        "Free space on the disk, and correct the permissions of the directory.",
    ),
    "32-0005": Advice(
        "A file of a SOW topic is cut off or damaged. Sound values are used, others come from the log.",
        "Check the disk, and publish missing values again.",
    ),
    "70-0004": Advice(
        "A client read too slowly for too long, and its limit of waiting messages is reached.",
        "Make its message handler faster, narrow its filter, use conflation, or raise the limits of slow clients.",
    ),
    "70-0011": Advice(
        "A client reads more slowly than messages arrive; they wait in the server.",
        "See 70-0004: if it stays slow, it is disconnected.",
    ),
    "FF-0001": Advice("The server was told to stop, by a signal or an action."),
    "FF-0002": Advice("The server stops; it waits until the log is durable."),
    "FF-0003": Advice("The server has stopped in order."),
    "FF-0004": Advice(
        "A process did not end in time during the shutdown and was killed.",
        "Nothing acknowledged is lost. If it is repeated, look at the load and the device.",
    ),
    "FF-0005": Advice("Actions of the shutdown take too long; it continues.", "Make these actions shorter."),
    "FF-0006": Advice(
        "The log could not be made durable in the shutdown.",
        "Check the device. Publishers send unacknowledged messages again after the next start.",
    ),
    "FF-0007": Advice("A process ended by itself in the shutdown.", "Look at the records before; report it."),
}
