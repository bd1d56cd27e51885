"""Scenario `balance`: the load of brokers is kept even, while brokers, leaders and load come and go."""
