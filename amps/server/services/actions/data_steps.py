"""Steps for variables and messages: translated texts, values from messages, counters, conditions."""

import shutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from amps._core.values.fields import FieldSet, FieldValues, MessageContext
from amps._core.values.value import convert
from amps.expressions import Expression, ExpressionError, Usage, compile_expression
from amps.messages import MessageType, make_message_types
from amps.server.services.actions.step import Environment, Run, Step, StepFailure
from amps.server.services.actions.variables import from_bytes, to_bytes
from amps.server.services.publisher import PublishFailure

if TYPE_CHECKING:
    from amps._core.values.value import Scalar

COUNTERS_MAX = 100_000
EVALUATION_BYTES_MAX = 256 << 20


class PublishMessage(Step):
    """Publishes one message, and waits until it is durable. For an event of a queue: until the publish is certain."""

    module = "amps-action-do-publish-message"

    async def run(self, options: Mapping[str, Any], run: Run) -> bool:
        publisher = run.publisher or self.environment.publisher
        try:
            await publisher.publish(
                options["Topic"],
                options["MessageType"],
                to_bytes(options["Data"]),
                None if options["Delay"] is None else round(options["Delay"] * 1000),
            )
        except PublishFailure as failure:
            raise StepFailure(str(failure)) from None
        return True


class EchoMessage(Step):
    """Writes a text to the log."""

    module = "amps-action-do-echo-message"

    async def run(self, options: Mapping[str, Any], run: Run) -> bool:
        self.environment.log.log(
            "29-0001", text=to_bytes(options["Message"]).decode("utf-8", "backslashreplace")
        )
        return True


class IncrementCounter(Step):
    """Increments the counter of a key, beginning with 1, and stores it in a variable. Counters end with the process."""

    module = "amps-action-do-increment-counter"

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self._counters: dict[str, int] = {}

    async def run(self, options: Mapping[str, Any], run: Run) -> bool:
        key = options["Key"]
        if key not in self._counters and len(self._counters) >= COUNTERS_MAX:
            raise StepFailure(f"there are more than {COUNTERS_MAX} counters; use fewer different keys")
        self._counters[key] = count = self._counters.get(key, 0) + 1
        run.set(options["Value"], str(count))
        return True


class TranslateData(Step):
    """Stores the translation of a text in a variable: of the first equal case, else the default, else the text."""

    module = "amps-action-do-translate-data"

    async def run(self, options: Mapping[str, Any], run: Run) -> bool:
        data: str = options["Data"]
        otherwise = data if options["Default"] is None else options["Default"]
        run.set(options["Value"], next((to for case, to in options["Case"] if case == data), otherwise))
        return True


class _Evaluator:
    """Evaluates expressions over the fields of one message."""

    def __init__(self, environment: Environment) -> None:
        config = environment.config
        self._types: dict[str, MessageType] = make_message_types(config.message_types.values())
        self._functions = config.functions
        self._values = FieldValues(EVALUATION_BYTES_MAX)
        self._context = MessageContext(to_bytes(config.name), to_bytes(config.group))

    def evaluate(self, texts: list[str], usage: Usage, message_type: str, message: bytes) -> "list[Scalar]":
        """Evaluate expressions; NULL is None. Raises StepFailure."""
        kind = self._types.get(message_type)
        if kind is None:
            raise StepFailure(f"there is no message type {message_type[:100]!r}; give one that is configured")
        expressions = [self._compile(text, usage) for text in texts]
        fields = FieldSet([path for expression in expressions for path in expression.fields])
        programs = [expression.program for expression in expressions]
        bound = [program.bind(fields) for program in programs if program is not None]
        try:
            if not kind.extractor().read(message, fields, self._values):
                raise StepFailure(f"the data cannot be read as a message of type {message_type}")
            return [program.evaluate(self._values, self._context) for program in bound]
        except MemoryError:
            raise StepFailure("evaluating takes more memory than is allowed") from None

    def _compile(self, text: str, usage: Usage) -> Expression:
        try:
            expression = compile_expression(to_bytes(text), usage, self._functions)
        except ExpressionError as error:
            raise StepFailure(f"the expression cannot be used: {error}") from None
        if expression.program is None:
            raise StepFailure("the expression needs more than one message; it cannot be used here")
        return expression


class ExtractValues(Step):
    """Stores the values of expressions over a message in variables; NULL is the empty text."""

    module = "amps-action-do-extract-values"

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self._evaluator = _Evaluator(environment)

    async def run(self, options: Mapping[str, Any], run: Run) -> bool:
        names = [name for name, _ in options["Value"]]
        texts = [text for _, text in options["Value"]]
        # Without data nothing is parsed: any bytes are a message of type binary, which has no fields.
        message_type = options["MessageType"] if options["Data"] is not None else "binary"
        data = to_bytes(options["Data"] or "")
        values = self._evaluator.evaluate(texts, Usage.FIELD, message_type, data)
        for name, value in zip(names, values, strict=True):
            run.set(name, shown_value(value))
        return True


def shown_value(value: "Scalar") -> str:
    """A value as text, converted by the rules of the expression language."""
    text = convert(value, "text")
    return from_bytes(text) if isinstance(text, bytes) else ""


class Condition(Step):
    """Ends the run unless an expression is true. There is no message: the expression can use variables only."""

    module = "amps-action-if-condition"

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self._evaluator = _Evaluator(environment)

    async def run(self, options: Mapping[str, Any], run: Run) -> bool:
        (value,) = self._evaluator.evaluate([options["Condition"]], Usage.FILTER, "binary", b"")
        return convert(value, "truth") is True


class FileSystemUsage(Step):
    """Ends the run unless more than a share of a file system is used."""

    module = "amps-action-if-file-system-usage"

    async def run(self, options: Mapping[str, Any], run: Run) -> bool:
        try:
            usage = shutil.disk_usage(options["Path"])
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise StepFailure(
                f"the file system of {options['Path']!r} cannot be examined: {reason}"
            ) from None
        available = (
            usage.used + usage.free
        )  # without the blocks of the file system that are reserved for root, as in df
        return available > 0 and usage.used / available > options["GreaterThan"]
