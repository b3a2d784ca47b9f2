"""One index in several shards: each a store of its own, filled and built alone, searched as one."""

from mvindex.index.sharded import ShardedIndex, create_sharded, open_sharded
from mvindex.index.single_shard import SingleShard, create_shard_index, open_shard_index
from mvindex.ingest.assemble import AssembleReport, assemble

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
