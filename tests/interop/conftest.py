"""Tests here need libraries that stf does not depend on; each says which."""
