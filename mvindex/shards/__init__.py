"""One index in several shards: each a store of its own, filled and built alone, searched as one."""

from mvindex.shards.assembling import AssembleReport, assemble
from mvindex.shards.index import ShardedIndex, create_sharded, open_sharded
from mvindex.shards.single import SingleShard, create_shard_index, open_shard_index

__all__ = [
    "AssembleReport",
    "ShardedIndex",
    "SingleShard",
    "assemble",
    "create_shard_index",
    "create_sharded",
    "open_shard_index",
    "open_sharded",
]
