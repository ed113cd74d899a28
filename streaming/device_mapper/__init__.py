"""The device mapper: from a personalised message for contacts to a message for each of their devices.

`messages` decodes, `fetch` finds devices, `filtering` and `language` choose, `assemble` writes what a provider takes,
`mapping` puts these together without I/O, `mapper` is the daemon around it.
"""
