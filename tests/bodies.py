"""The bodies of kernels that calls ask for, which are compiled then."""
from loopwright.lower.runtime import later


def asked_for(monkeypatch):
    """The names of those that were made since, as they come."""
    names, make = [], later.Later.make

    def noted(self, place):
        before = len(self.libraries)
        make(self, place)
        names.extend(name for name, at in zip(self.functions, self.places, strict=True) if at and len(self.libraries) > before)
    monkeypatch.setattr(later.Later, "make", noted)
    return names
