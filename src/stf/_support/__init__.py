"""The ground: locks, the compiled and the uncompiled form, checks of arguments."""
