"""Creates the tree of a new cluster, and opens an existing one."""

from __future__ import annotations

from magnetar.metadata.bookkeeper.bookkeeper_tree import DEFAULT_ROOT, BookKeeperTree
from magnetar.metadata.bookkeeper.ledger_layouts import (
    LayoutError,
    LedgerLayout,
    decode_layout,
    encode_layout,
)
from magnetar.metadata.bookkeeper.registry import ClusterNotInitializedError
from magnetar.metadata.store import MUST_NOT_EXIST, BadVersionError, MetadataStore, Put


async def initialize_cluster(store: MetadataStore, tree: BookKeeperTree, instance_id: str) -> bool:
    """Makes the tree of a new cluster; False when one exists, which stays unchanged.

    Several processes may try at once: one of them wins. Raises LayoutError when the tree that is there
    has another layout than `tree`, MetadataError.
    """
    created = True
    root = [] if await store.exists(tree.root) else [Put(tree.root, b"", MUST_NOT_EXIST)]
    try:
        await store.transact(
            [
                *root,
                Put(tree.available, b"", MUST_NOT_EXIST),
                Put(tree.read_only, b"", MUST_NOT_EXIST),
                Put(tree.instance_id, instance_id.encode(), MUST_NOT_EXIST),
            ]
        )
    except BadVersionError:
        created = False
    try:
        # A separate transaction, as BookKeeper does: a process that finds the tree without this node adds it.
        await store.put(tree.layout_node, encode_layout(tree.layout), expected_version=MUST_NOT_EXIST)
    except BadVersionError:
        await open_tree(store, tree.root, layout=tree.layout)
    return created


async def open_tree(
    store: MetadataStore, root: str = DEFAULT_ROOT, *, layout: LedgerLayout | None = None
) -> BookKeeperTree:
    """Opens the tree of a cluster. `layout` is the layout that the tree must have; None accepts any.

    Raises ClusterNotInitializedError, LayoutError, MetadataError.
    """
    tree = BookKeeperTree(root)
    await store.sync()
    value = await store.get(tree.layout_node)
    if value is None:
        raise ClusterNotInitializedError(f"{root}: no cluster was initialized here")
    found = decode_layout(value.data)
    if layout is not None and layout is not found:
        raise LayoutError(f"{root}: ledgers are laid out as {found.value}, not as {layout.value}")
    return BookKeeperTree(root, found)
