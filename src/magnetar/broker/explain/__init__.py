"""Why a subscription does or does not dispatch."""
