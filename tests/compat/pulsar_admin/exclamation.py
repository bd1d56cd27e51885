"""A function that the transcripts create."""


def process(input: str) -> str:  # noqa: A002  # the name that Pulsar's examples have
    return f"{input}!"
