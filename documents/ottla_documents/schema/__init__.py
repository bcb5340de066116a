"""What the fields of a document are, declared once: as dataclasses.

    @dataclass(frozen=True, slots=True)
    class RebalanceSpec:
        \"\"\"How replicas are moved.\"\"\"

        mode: Literal["Auto", "DryRun", "Off"] = "Auto"
        \"\"\"Whether replicas move by themselves.\"\"\"
        most_partitions: Annotated[int, WholeNumber(1, 1000), Named("maxPartitionsPerBatch")] = 20
        \"\"\"How many partitions are moved at the same time.\"\"\"

The type and its marks (`marks`) say what a value may be; a field without a default is required; the string below a
field describes it to users. From this follow

    nodes             a value of the dataclass from a document, with a problem for each wrong field
    openapi           the schema that the API server checks and `kubectl explain` prints
    custom_resource   the CustomResourceDefinition of a kind

`ottla_documents.generator` writes crds/*.yaml and schemas/*.json from them.

What no schema can say, a dataclass says itself: its method `problems` yields the name of a field and what is wrong
with it.
"""
