package pmix

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/bringupd/bringupd/pkg/pmi"
)

// groupOps are the operations on groups, by PMIx's numbers; their names distinguish the kinds of
// collective operations.
var groupOps = []string{"making", "ending"}

// group returns the function that answers a request to create or to end a group. Open MPI's
// sessions create their communicators from groups. Members meet in a collective operation; each
// receives the endpoint data of all nodes and a number that no other group has.
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

// joined combines what the nodes contributed to a group: the XOR of their random numbers, which
// does not depend on their order, and their concatenated data.
func joined(all []byte) (number uint64, data []byte) {
	r := &reader{left: all}
	for len(r.left) > 0 {
		high, low := r.number(), r.number()
		number ^= uint64(high)<<32 | uint64(low)
		data = append(data, r.bytes()...)
	}
	return number, data
}
