"""The tables of options and presets, and their page."""

from benchmarks import options_page


def test_options_that_have_a_page_link_to_it():
    shared, own = options_page.option_rows("shared"), options_page.option_rows("DDPG")
    assert shared["prioritised"][0].startswith("[`prioritised`](options/prioritised.md)<br>")
    assert own["atoms"][0].startswith("[`atoms`](options/critic.md)<br>")
    assert shared["tau"][:3] == ["`tau`<br>`--tau`", "`float`", "`0.005`"]
    assert "target networks" in shared["tau"][3]


def test_presets_are_listed_by_recipe_and_options():
    rows = options_page.preset_rows()
    options = "recipe [`plus`](recipes/plus.md), `actor_average=1000`"
    assert rows["HalfCheetah-v5"] == ["`HalfCheetah-v5`", "1,000,000", options, "yes"]
    assert rows["Hopper-v5"] == ["`Hopper-v5`", "1,000,000", f"{options}, `norm=renorm_preactivation`", "yes"]
    assert rows["Reacher-v5"] == ["`Reacher-v5`", "50,000", "`gamma=0.98`", "yes"]
    assert rows["any other, discrete actions"][1:] == [*rows["Acrobot-v1"][1:3], ""]


def test_presets_without_published_returns_are_marked(monkeypatch):
    monkeypatch.setattr(options_page, "_published", lambda: {"Hopper-v5"})
    rows = options_page.preset_rows()
    assert (rows["Hopper-v5"][-1], rows["Reacher-v5"][-1]) == ("yes", "not yet")
