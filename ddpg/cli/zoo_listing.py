"""``ddpg zoo``."""

import dataclasses
import json

from ddpg.cli.command import JSONOption
from ddpg.config.options import option


@dataclasses.dataclass(frozen=True, kw_only=True)
class Zoo(JSONOption):
    """List the trained policies in the package, or show the card of one."""

    name: str | None = option(None, "a policy, such as HalfCheetah-v5; none: list all", positional=True, metavar="NAME")

    def __call__(self) -> None:
        """List them."""
        from ddpg.exports.zoo import read_entry
        from ddpg.runs.zoo_policy import card_text, list_zoo, zoo_text

        if self.name is None:
            rows = list_zoo()
            print(json.dumps({"policies": rows}) if self.json else zoo_text(rows))
            return
        import msgspec

        entry = read_entry(self.name)
        print(json.dumps(msgspec.to_builtins(entry.card)) if self.json else card_text(entry))
