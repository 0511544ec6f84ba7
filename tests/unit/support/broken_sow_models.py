"""Wrong rules for the model of the state of the world: each is a mistake that a server could make.

A rule is a place in the text of a module, and what stands there instead.
"""

from typing import NamedTuple


class Broken(NamedTuple):
    """A module of tests/support, the right text, and the wrong one."""

    module: str
    right: str
    wrong: str


BROKEN = (
    Broken("sow_conflation", "self._began_s.setdefault(event.key, time_s)", "self._began_s[event.key] = time_s"),
    Broken("sow_conflation", "self._held.setdefault(event.key, []).append(event)", "self._held[event.key] = [event]"),
    Broken("sow_conflation", "self._known.pop(key, None)", "self._known.pop(key, last.body)"),
    Broken("sow_conflation", "Event(key, known, last.reason)", "Event(key, last.body, last.reason)"),
    Broken("sow_conflation", "self._known[key] = body", "self._known.setdefault(key, body)"),
    Broken("sow_conflation", "self._known[key] = row.body", "self._known[key] = body"),
    Broken("sow_conflation", "<= now_s", "< now_s"),
    Broken("sow_conflation", "row.body for row in rows(view, model.state())", "row.body for row in ()"),
    Broken(
        "sow_documents",
        "return merged\n\n\ndef laid_over",
        "return laid_over(stored, delta)\n\n\ndef laid_over",
    ),
    Broken("sow_documents", "without_nulls(delta) or {}", "delta"),
    Broken("sow_documents", "laid_over(before, value) if merges else value", "value"),
    Broken("sow_documents", "for name in old if name not in new", "for name in ()"),
    Broken("sow_documents", "elif before != after and", "elif plain(before) != plain(after) and"),
    Broken("sow_documents", "changed = without(changed, path)", "pass"),
    Broken("sow_documents", "if has_field(new, path):", "if False:"),
    Broken(
        "sow_documents",
        'rules.setdefault(path_of(match[2]), match[1] == "+")',
        'rules[path_of(match[2])] = match[1] == "+"',
    ),
    Broken("sow_documents", "included = rules.get(above, included)", "pass"),
    Broken("sow_documents", "return kept if kept or included else None", "return kept or None"),
    Broken("sow_documents", "return kept if kept or included else None", "return kept"),
    Broken("sow_documents", "parse_float=Number", "parse_float=lambda text: Number(str(int(float(text))))"),
    Broken("sow_documents", 'return value is None or value == ""', "return value is None"),
    Broken(
        "sow_model",
        "document = documents.merge(last.new, document, self.key_paths)",
        "document = {**last.new, **document}",
    ),
    Broken("sow_model", "correlation_id or last.correlation_id", "correlation_id"),
    Broken("sow_model", "change.txid < txid", "change.txid <= txid"),
    Broken(
        "sow_model",
        "if change.time_s <= time_s)\n\n    def historical",
        "if change.time_s < time_s)\n\n    def historical",
    ),
    Broken(
        "sow_model",
        "time_s < self.now_s - self.settings.window_s",
        "time_s <= self.now_s - self.settings.window_s",
    ),
    Broken("sow_model", "time_s < self.now_s - self.settings.window_s", "False"),
    Broken("sow_model", "math.floor(time_s / granularity_s) * granularity_s", "time_s"),
    Broken("sow_model", "change.time_s > time_s]", "change.time_s >= time_s]"),
    Broken(
        "sow_model",
        "if not granularity_s:\n            return self.changes",
        "if True:\n            return self.changes",
    ),
    Broken("sow_model", "if self.settings.expiration == DISABLED:", "if False:"),
    Broken("sow_model", "change.expires_s <= self.now_s", "change.expires_s < self.now_s"),
    Broken(
        "sow_model",
        "last = {change.key: change for change in self.changes}\n",
        "last = {change.key: change for change in reversed(self.changes)}\n",
    ),
    Broken("sow_model", "if lifetime_s > 0 else None", "if lifetime_s >= 0 else None"),
    Broken("sow_model", "return None if isinstance(default, str) else self.now_s + default", "return None"),
    Broken("sow_model", "sorted(set(keys)) if key in present", "sorted(set(keys))"),
    Broken("sow_model", "for key in sorted(set(keys))", "for key in reversed(sorted(set(keys)))"),
    Broken("sow_model", "txid, self._next_txid = self._next_txid", "txid, self._next_txid = 1"),
    Broken("sow_model", "if not name:", "if name is False:"),
    Broken(
        "sow_model",
        "if self.settings.domain is not None else self.settings.name",
        "if False else self.settings.name",
    ),
    Broken("sow_model", "join((domain, *texts))", "join(texts)"),
    Broken("sow_model", "join((domain, *texts))", "join(sorted((domain, *texts)))"),
    Broken("sow_model", "if predicate(documents.plain(document))", "if True"),
    Broken("sow_views", "else ordered(view, state)[: view.top]", "else ordered(view, state)"),
    Broken("sow_views", "keys = sorted(key", "keys = list(key"),
    Broken("sow_views", "reversed(view.order_by)", "view.order_by"),
    Broken("sow_views", "keys[view.skip : view.skip + view.top]", "keys[view.skip : view.top]"),
    Broken("sow_views", "if key not in now] if view.oof else []", "if key not in now]"),
    Broken(
        "sow_views",
        "for key in was if key not in now] if view.oof",
        "for key in was if key not in now and key in changed] if view.oof",
    ),
    Broken("sow_views", "elif key not in was:", "elif False:"),
    Broken(
        "sow_views",
        "Event(key, _body(new, state[key]), MATCH) for key in was if key not in now",
        "Event(key, _body(new, state[key]), MATCH) for key in was",
    ),
    Broken("sow_views", "for key in now if key not in was], left", "for key in now], left"),
    Broken("sow_views", "left if new.oof else []", "left"),
    Broken(
        "sow_views",
        "return Event(key, _body(view, before[key]), EXPIRED if",
        "return Event(key, None, EXPIRED if",
    ),
    Broken("sow_views", "EXPIRED if change.kind == EXPIRY else DELETED", "DELETED"),
    Broken(
        "sow_views",
        "return Event(key, _body(view, before[key]), ENTITLEMENT)",
        "return Event(key, _body(view, change.new), ENTITLEMENT)",
    ),
    Broken(
        "sow_views",
        "if not view.entitled(documents.plain(change.new)):",
        "if view.matches(documents.plain(change.new)):",
    ),
    Broken(
        "sow_views",
        "return Event(key, _body(view, change.new), MATCH)",
        "return Event(key, _body(view, before[key]), MATCH)",
    ),
    Broken("sow_views", "(view.oof or view.is_page)", "view.oof"),
    Broken("sow_views", "(view.oof or view.is_page)", "True"),
    Broken("sow_views", "or change.old is None", ""),
    Broken("sow_views", "or comes_into_focus", ""),
    Broken("sow_views", "if view.no_empties and", "if"),
    Broken("sow_views", "_selected(view, changed)", "changed"),
    Broken("sow_views", "view.matches(message) and view.entitled(message)", "view.matches(message)"),
    Broken("sow_views", "for directives in view.select:", "for directives in view.select[:1]:"),
    Broken("sow_views", "if isinstance(value, list):", "if False:"),
    Broken("sow_views", "if field.as_text:", "if False:"),
)
