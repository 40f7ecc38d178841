package health

import "time"

// Losses are the failures that ranks are lost, one for each kind of loss. since
// is for how long nothing was heard of them, name how messages speak of one rank,
// and names how they speak of several.
func Losses(kinds map[Kind][]int, since time.Duration, name func(rank int) string, names func(ranks []int) string) []*Failure {
	var all []*Failure
	for _, row := range []struct {
		kind      Kind
		one, many string
	}{
		{DaemonDied, "the daemon of %s has died: its host has reset the lifeline, and it has not come back for %s",
			"the daemons of %s have died: their hosts have reset the lifelines, and they have not come back for %s"},
		{HostLost, "the host of %s is lost: nothing there has answered for %s", "the hosts of %s are lost: nothing there has answered for %s"},
		{HostHangs, "%s hangs: the kernel of its host answers, and its daemon, or its mount of the share, has not for %s",
			"%s hang: the kernels of their hosts answer, and their daemons, or their mounts of the share, have not for %s"},
		{PeerLost, "%s is lost: no beat for %s (the daemon was killed, or the node or its mount hangs)",
			"%s are lost: no beat for %s (the daemons were killed, or the nodes or their mounts hang)"},
	} {
		ranks := kinds[row.kind]
		if len(ranks) == 0 {
			continue
		}
		f := Failed(row.kind, row.one, name(ranks[0]), since)
		if len(ranks) > 1 {
			f = Failed(row.kind, row.many, names(ranks), since)
		}
		f.Lost = ranks
		all = append(all, f)
	}
	return all
}
