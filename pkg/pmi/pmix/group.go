package pmix

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/bringupd/bringupd/pkg/pmi"
)

// groupOps are what is done with a group, by PMIx's numbers.
var groupOps = []string{"making", "ending"}

// group is a fence of those that make a group or end one: Open MPI's sessions make their communicators by such. What the nodes give is told to
// all, and a number that no other group has.
func (s *Server) group(r *reader) func(context.Context, *frame) error {
	op, name, of, with := int(r.byte()), r.text(), r.procs(), r.infos()
	if op >= len(groupOps) {
		return refuse(pmi.NotSupported)
	}
	if len(name) > longestKey {
		return refuse(fmt.Errorf("cannot use a group's name of %d bytes: at most %d are accepted: %w", len(name), longestKey, pmi.BadParam))
	}
	endpoints, _ := with.of("pmix.grp.endpt")
	own := binary.BigEndian.AppendUint64(nil, rand.Uint64())
	own = binary.BigEndian.AppendUint32(own, uint32(len(endpoints)))
	own = append(own, endpoints...)
	return bounded(with, func(ctx context.Context, f *frame) error {
		all, err := s.Peers.Gather(ctx, pmi.Meet(groupOps[op]+" the group "+name), of, own)
		if err != nil {
			return err
		}
		number, together := joined(all)
		infos := []info{{"pmix.grp.ctxid", typeSize, number}, {"pmix.grp.mbrs", typeProcs, of}}
		if len(together) > 0 {
			infos = append(infos, info{"pmix.grp.endpt", typeBytes, together})
		}
		f.infos(infos)
		return nil
	})
}

// joined is what nodes have given for a group: a number that is drawn by all, in whatever order they come, and their data, one after the other.
func joined(all []byte) (number uint64, data []byte) {
	r := &reader{left: all}
	for len(r.left) > 0 {
		high, low := r.number(), r.number()
		number ^= uint64(high)<<32 | uint64(low)
		data = append(data, r.bytes()...)
	}
	return number, data
}
