package framework

import "strconv"

// ObjectStore is how many bytes the arguments of ray start have each node keep
// in /dev/shm, the larger of head's and workers'; 0 where they leave it to Ray,
// which takes less where there is less.
func (r Ray) ObjectStore() (most int64) {
	for _, args := range [][]string{r.HeadArgs, r.WorkerArgs} {
		flags, err := parseRayFlags(args)
		if err != nil {
			continue // Argv tells
		}
		value, _ := flags.value("--object-store-memory")
		if bytes, err := strconv.ParseInt(value, 10, 64); err == nil {
			most = max(most, bytes)
		}
	}
	return most
}
