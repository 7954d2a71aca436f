"""The address of a site as text, and taken apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensonde.model.site import Address, Kind, Role, Site


@pytest.mark.parametrize(
    ("text", "name", "role", "index", "module", "op"),
    [
        ("blocks.3.attn/softmax#0:out[1]", "blocks.3.attn/softmax#0", "out", 1, "blocks.3.attn", "softmax"),
        ("fc.weight:grad", "fc.weight", "grad", None, "fc.weight", ""),
        ("/relu#2:out", "/relu#2", "out", None, "", "relu"),
        ("loss", "loss", "", None, "loss", ""),
        ("table[0]:in[12]", "table[0]", "in", 12, "table[0]", ""),
        ("", "", "", None, "", ""),
    ],
)
def test_an_address_is_taken_apart(text: str, name: str, role: str, index: int | None, module: str, op: str) -> None:
    found = Address.of(text)
    assert (found.name, found.role, found.index, found.module, found.op) == (name, role, index, module, op)


@given(st.text(), st.sampled_from(Role), st.none() | st.integers(0, 999))
def test_every_site_comes_back_from_its_address(name: str, role: Role, index: int | None) -> None:
    site = Site(0, name, role, Kind.MODULE, index)
    assert Address.of(site.address) == Address(name, str(role), index)
