"""How other libraries' arrays come in and go out; each is imported only when it is used."""
