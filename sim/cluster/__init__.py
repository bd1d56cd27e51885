"""A whole cluster under faults: the product's own asyncio code on a simulated loop, network and store."""
