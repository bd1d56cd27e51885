"""How load is kept even: settings that can change while brokers run (pure).

They lie in the cluster's metadata, so all brokers have the same. Source: the names and, unless it is said
otherwise, the defaults are those of Pulsar's ServiceConfiguration.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class SheddingStrategy(Enum):
    """What makes a broker give bundles away, by the name of Pulsar's class."""

    THRESHOLD = "org.apache.pulsar.broker.loadbalance.impl.ThresholdShedder"
    """Its processor is busier than the average by some points."""
    UNIFORM = "org.apache.pulsar.broker.loadbalance.impl.UniformLoadShedder"
    """It has far more messages or bytes per second than the broker with the fewest."""


class SplitAlgorithm(Enum):
    """Where a bundle is split, by Pulsar's name."""

    RANGE = "range_equally_divide"
    """In the middle of its range of hashes."""
    TOPIC_COUNT = "topic_count_equally_divide"
    """So that both parts have as many topics."""
    POSITIONS = "specified_positions_divide"
    """Where the operator says; a broker that splits by itself takes RANGE."""
    FLOW = "flow_or_qps_equally_divide"
    """So that both parts have as much to do."""


@dataclass(frozen=True, slots=True)
class BalanceSettings:
    """All of them."""

    shedding: bool = True
    """Whether bundles leave brokers that have too much to do."""
    strategy: SheddingStrategy = SheddingStrategy.THRESHOLD
    interval_minutes: int = 0
    """Between two decisions; 0: at each report, every 5 s. Pulsar's default is 1."""
    threshold_points: int = 10
    """THRESHOLD: points of processor time above the average."""
    rate_difference_percent: int = 50
    """UNIFORM: by how much more messages per second than those of the least loaded broker."""
    size_factor: int = 4
    """UNIFORM: how many times the bytes per second of the least loaded broker."""
    grace_minutes: int = 30
    """Time for which a bundle that was moved for its load stays where it is."""
    hits: int = 2
    """Reports in a row that must show too much load. Pulsar's default for its TransferShedder is 3."""
    split: bool = True
    """Whether bundles with too much to do are split."""
    split_hits: int = 3
    """Reports in a row in which a bundle is too large before it is split."""
    split_at_once: int = 10
    """Bundles that a broker splits per round at most."""
    topics_max: int = 1_000
    """Loaded topics above which a bundle is split."""
    sessions_max: int = 1_000
    """Producers and consumers above which it is split."""
    rate_max: int = 30_000
    """Messages per second, in and out, above which it is split."""
    bandwidth_mib_max: int = 100
    """MiB per second, in and out, above which it is split."""
    bundles_max: int = 128
    """Bundles of a namespace above which none is split automatically."""
    algorithm: SplitAlgorithm = SplitAlgorithm.RANGE
    """Of automatic splits."""


DEFAULTS: Final = BalanceSettings()
