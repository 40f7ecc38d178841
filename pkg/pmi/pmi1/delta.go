package pmi1

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
)

// Format of a node's data in a barrier. A frame begins with [mark], the length of its body and the
// body's CRC-32, four bytes each. The body contains keys and values alternately; each is preceded
// by its length as a varint.
const (
	mark   = "bPM1"
	header = len(mark) + 8
)

// encode returns a frame with the values that the ranks of a node have put.
func encode(values map[string]string) []byte {
	frame := make([]byte, header)
	for _, key := range slices.Sorted(maps.Keys(values)) {
		for _, text := range [2]string{key, values[key]} {
			frame = binary.AppendUvarint(frame, uint64(len(text)))
			frame = append(frame, text...)
		}
	}
	copy(frame, mark)
	binary.BigEndian.PutUint32(frame[len(mark):], uint32(len(frame)-header))
	binary.BigEndian.PutUint32(frame[len(mark)+4:], crc32.ChecksumIEEE(frame[header:]))
	return frame
}

// decode returns the values of all nodes, from their concatenated frames. It returns an error
// unless data consists of exactly one frame per node.
func decode(data []byte, nodes int) (map[string]string, error) {
	values := make(map[string]string)
	frames := 0
	for at := 0; at < len(data); frames++ {
		body, err := unframe(data[at:])
		if err != nil {
			return nil, fmt.Errorf("cannot read what nodes gave at a barrier, at byte %d of %d: %v", at, len(data), err)
		}
		if !fill(values, body) {
			return nil, fmt.Errorf("cannot read what nodes gave at a barrier, in the %d bytes from %d on: keys and values do not fit them", len(body), at)
		}
		at += header + len(body)
	}
	if frames != nodes {
		return nil, fmt.Errorf("cannot complete a barrier: it has what %d nodes gave, and the job is on %d", frames, nodes)
	}
	return values, nil
}

// unframe returns the body of the first frame in data.
func unframe(data []byte) ([]byte, error) {
	if len(data) < header || string(data[:len(mark)]) != mark {
		return nil, fmt.Errorf("%q begins no frame of %q", data[:min(len(data), header)], mark)
	}
	size, sum := binary.BigEndian.Uint32(data[len(mark):]), binary.BigEndian.Uint32(data[len(mark)+4:])
	if uint64(size) > uint64(len(data)-header) {
		return nil, fmt.Errorf("a frame of %d bytes is cut off after %d", size, len(data)-header)
	}
	body := data[header:][:size]
	if crc32.ChecksumIEEE(body) != sum {
		return nil, fmt.Errorf("a frame of %d bytes is not what was sent: its checksum differs", size)
	}
	return body, nil
}

// fill adds the keys and values in a body. It returns false if the body is malformed.
func fill(values map[string]string, body []byte) bool {
	text := string(body) // convert once, not each key and value: a large job has tens of thousands
	for at := 0; at < len(body); {
		var pair [2]string
		for i := range pair {
			size, n := binary.Uvarint(body[at:])
			if n <= 0 || size > uint64(len(body)-at-n) {
				return false
			}
			at += n + int(size)
			pair[i] = text[at-int(size) : at]
		}
		values[pair[0]] = pair[1]
	}
	return true
}
