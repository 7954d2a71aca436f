"""Adapters, one package per framework; `registry` lists them."""
