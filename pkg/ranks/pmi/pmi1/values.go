package pmi1

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
)

// Format of a node's data in a barrier. A frame begins with [frameMark], the length of its body and
// the body's CRC-32, four bytes each. The body contains keys and values alternately; each is
// preceded by its length as a varint.
const (
	frameMark  = "bPM1"
	headerSize = len(frameMark) + 8
)

// encodeValues returns a frame with the values that the ranks of a node have put.
func encodeValues(values map[string]string) []byte {
	frame := make([]byte, headerSize)
	for _, key := range slices.Sorted(maps.Keys(values)) {
		for _, text := range [2]string{key, values[key]} {
			frame = binary.AppendUvarint(frame, uint64(len(text)))
			frame = append(frame, text...)
		}
	}
	copy(frame, frameMark)
	binary.BigEndian.PutUint32(frame[len(frameMark):], uint32(len(frame)-headerSize))
	binary.BigEndian.PutUint32(frame[len(frameMark)+4:], crc32.ChecksumIEEE(frame[headerSize:]))
	return frame
}

// decodeValues returns the values of all nodes, from their concatenated frames. It returns an error
// unless data consists of exactly one frame per node.
func decodeValues(data []byte, nodes int) (map[string]string, error) {
	values := make(map[string]string)
	frames := 0
	for at := 0; at < len(data); frames++ {
		body, err := readFrameBody(data[at:])
		if err != nil {
			return nil, fmt.Errorf("cannot decode the nodes' data at a barrier, at byte %d of %d: %v", at, len(data), err)
		}
		if !addValues(values, body) {
			return nil, fmt.Errorf("cannot decode the nodes' data at a barrier: keys and values do not fit the %d bytes from %d on", len(body), at)
		}
		at += headerSize + len(body)
	}
	if frames != nodes {
		return nil, fmt.Errorf("cannot complete a barrier: it has the data of %d nodes, and the job has %d", frames, nodes)
	}
	return values, nil
}

// readFrameBody returns the body of the first frame in data.
func readFrameBody(data []byte) ([]byte, error) {
	if len(data) < headerSize || string(data[:len(frameMark)]) != frameMark {
		return nil, fmt.Errorf("%q is not the start of a frame, %q", data[:min(len(data), headerSize)], frameMark)
	}
	size, sum := binary.BigEndian.Uint32(data[len(frameMark):]), binary.BigEndian.Uint32(data[len(frameMark)+4:])
	if uint64(size) > uint64(len(data)-headerSize) {
		return nil, fmt.Errorf("a frame of %d bytes is cut off after %d", size, len(data)-headerSize)
	}
	body := data[headerSize:][:size]
	if crc32.ChecksumIEEE(body) != sum {
		return nil, fmt.Errorf("a frame of %d bytes is corrupt: its checksum is wrong", size)
	}
	return body, nil
}

// addValues adds the keys and values in a body. It returns false if the body is malformed.
func addValues(values map[string]string, body []byte) bool {
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
