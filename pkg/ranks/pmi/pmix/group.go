package pmix

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/bringupd/bringupd/pkg/ranks/pmi"
)

var groupOpNames = []string{"making", "ending"}

// decodeGroup returns the function that answers a request to create or to end a group. Open MPI's
// sessions create their communicators from groups. Members meet in a collective operation; each
// receives the endpoint data of all nodes and a number that no other group has.
func (s *Server) decodeGroup(r *frameReader) answerFunc {
	op, name, of, with := int(r.readByte()), r.readText(), r.readProcs(), r.readAttributes()
	if op >= len(groupOpNames) {
		return answerError(pmi.NotSupported)
	}
	if len(name) > maxKeyLength {
		return answerError(fmt.Errorf("cannot use a group name of %d bytes: at most %d are accepted: %w",
			len(name), maxKeyLength, pmi.BadParam))
	}
	endpoints, _ := with.lookupKey("pmix.grp.endpt")
	own := binary.BigEndian.AppendUint64(nil, rand.Uint64())
	own = binary.BigEndian.AppendUint32(own, uint32(len(endpoints)))
	own = append(own, endpoints...)
	return withTimeout(with, func(ctx context.Context, f *frame) error {
		all, err := s.Peers.GatherProcs(ctx, pmi.CollectiveKind("MPI "+groupOpNames[op]+" the group "+name), of, own)
		if err != nil {
			return err
		}
		number, together := combineContributions(all)
		infos := []attribute{{"pmix.grp.ctxid", typeSize, number}, {"pmix.grp.mbrs", typeProcs, of}}
		if len(together) > 0 {
			infos = append(infos, attribute{"pmix.grp.endpt", typeBytes, together})
		}
		f.addAttributes(infos)
		return nil
	})
}

// combineContributions combines what the nodes contributed to a group: the XOR of their random
// numbers, which does not depend on their order, and their concatenated data.
func combineContributions(all []byte) (number uint64, data []byte) {
	r := &frameReader{rest: all}
	for len(r.rest) > 0 {
		high, low := r.readNumber(), r.readNumber()
		number ^= uint64(high)<<32 | uint64(low)
		data = append(data, r.readBytes()...)
	}
	return number, data
}
