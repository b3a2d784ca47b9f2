"""Power cuts: the calls of a writer are recorded with strace and replayed on a model of a disk that forgets."""
