"""Which processor a number was measured on: a name such as "AMD EPYC" covers generations of unlike width."""

from typing import Any

# Generations of AMD's cores by CPUID family and ranges of models; only those that are certain.
GENERATIONS = {
    25: (("Zen 4", (range(0x10, 0x20), range(0xA0, 0xB0))),),
    26: (("Zen 5", (range(0x00, 0x30), range(0x40, 0x50), range(0x60, 0x80))),),
}
WIDTHS = (("avx512f", 512), ("avx2", 256), ("asimd", 128), ("sse2", 128))


def described(cpuinfo: str) -> dict[str, Any]:
    """Return what the text of ``/proc/cpuinfo`` says of the first processor; nothing that it does not say.

    Returns:
        Of ``vendor``, ``family``, ``model``, ``generation`` (where it is certain) and ``vector_bits`` (of the widest
        registers; what a core computes in a cycle may be half of that) those that are known.
    """
    fields: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    found: dict[str, Any] = {"vendor": fields["vendor_id"]} if fields.get("vendor_id") else {}
    found |= {key: int(fields[name]) for key, name in (("family", "cpu family"), ("model", "model")) if name in fields}
    if found.get("vendor") == "AuthenticAMD":
        for generation, models in GENERATIONS.get(found.get("family", -1), ()):
            if any(found.get("model") in numbers for numbers in models):
                found["generation"] = generation
    flags = {*fields.get("flags", fields.get("Features", "")).split()}
    width = next((bits for flag, bits in WIDTHS if flag in flags), None)
    return found | ({"vector_bits": width} if width else {})


def named(machine: dict[str, Any]) -> str:
    """Return the processor of a results file as a reader wants it: with its generation, or its numbers, and width."""
    about = [machine["generation"]] if "generation" in machine else []
    if not about and "family" in machine:
        about = [f"family {machine['family']}, model {machine.get('model', 'unknown')}"]
    if "vector_bits" in machine:
        about.append(f"{machine['vector_bits']}-bit vectors")
    return f"{machine['processor']} ({', '.join(about)})" if about else machine["processor"]
