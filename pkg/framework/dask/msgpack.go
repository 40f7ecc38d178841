package dask

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

var errMessage = errors.New("its answer is cut short or no MessagePack")

// deepest is how deep values may lie in each other.
const deepest = 64

// decode reads one value of MessagePack (github.com/msgpack/msgpack, spec.md): nil,
// a bool, an int64, a float64, a string for texts and bytes, a []any, or a
// map[string]any, whose keys are as fmt prints them. What is beyond int64 is a
// float64, and an extension the string of its bytes. What follows is left alone.
func decode(message []byte) (any, error) {
	d := decoder{message}
	return d.value(0)
}

type decoder struct{ rest []byte }

// take returns the next n bytes.
func (d *decoder) take(n uint64) ([]byte, error) {
	if n > uint64(len(d.rest)) {
		return nil, errMessage
	}
	taken := d.rest[:n]
	d.rest = d.rest[n:]
	return taken, nil
}

// unsigned reads a big-endian number of 1, 2, 4 or 8 bytes.
func (d *decoder) unsigned(size uint64) (uint64, error) {
	b, err := d.take(size)
	var wide [8]byte
	copy(wide[8-len(b):], b)
	return binary.BigEndian.Uint64(wide[:]), err
}

func (d *decoder) value(depth int) (any, error) {
	head, err := d.take(1)
	if err != nil || depth > deepest {
		return nil, errMessage
	}
	kind := head[0]
	switch {
	case kind <= 0x7f:
		return int64(kind), nil
	case kind >= 0xe0:
		return int64(int8(kind)), nil
	case kind <= 0x8f:
		return d.mapping(uint64(kind&0x0f), depth)
	case kind <= 0x9f:
		return d.array(uint64(kind&0x0f), depth)
	case kind <= 0xbf:
		return d.text(uint64(kind & 0x1f))
	}
	switch kind {
	case 0xc0:
		return nil, nil
	case 0xc2, 0xc3:
		return kind == 0xc3, nil
	case 0xd4, 0xd5, 0xd6, 0xd7, 0xd8: // extensions of 1, 2, 4, 8, 16 bytes, and the one that tells what they are
		return d.text(1<<(kind-0xd4) + 1)
	case 0xca, 0xcb, 0xcc, 0xcd, 0xce, 0xcf, 0xd0, 0xd1, 0xd2, 0xd3:
		return d.number(kind)
	}
	return d.sized(kind, depth)
}

// number reads a float of 4 or 8 bytes, or an unsigned or signed number of 1 to 8.
func (d *decoder) number(kind byte) (any, error) {
	if kind == 0xca {
		n, err := d.unsigned(4)
		return float64(math.Float32frombits(uint32(n))), err
	}
	if kind == 0xcb {
		n, err := d.unsigned(8)
		return math.Float64frombits(n), err
	}
	size := uint64(1) << (kind & 3)
	n, err := d.unsigned(size)
	switch {
	case kind >= 0xd0: // signed: the sign is that of its own size
		shift := 64 - 8*size
		return int64(n<<shift) >> shift, err
	case n > math.MaxInt64:
		return float64(n), err
	}
	return int64(n), err
}

// sized reads what has a length before it.
func (d *decoder) sized(kind byte, depth int) (any, error) {
	sizes := map[byte]uint64{
		0xc4: 1, 0xc5: 2, 0xc6: 4, 0xc7: 1, 0xc8: 2, 0xc9: 4, 0xd9: 1, 0xda: 2, 0xdb: 4, 0xdc: 2, 0xdd: 4, 0xde: 2, 0xdf: 4,
	}
	size, known := sizes[kind]
	if !known {
		return nil, errMessage
	}
	n, err := d.unsigned(size)
	switch {
	case err != nil:
		return nil, err
	case kind >= 0xde:
		return d.mapping(n, depth)
	case kind >= 0xdc:
		return d.array(n, depth)
	case kind >= 0xc7 && kind <= 0xc9:
		n++ // what kind of extension it is
	}
	return d.text(n)
}

func (d *decoder) text(n uint64) (any, error) {
	b, err := d.take(n)
	return string(b), err
}

func (d *decoder) array(n uint64, depth int) (any, error) {
	var values []any // not made for n at once, which may be a stranger's
	for range n {
		value, err := d.value(depth + 1)
		if err != nil {
			return nil, err
		}
		values = append(values, value)
	}
	return values, nil
}

func (d *decoder) mapping(n uint64, depth int) (any, error) {
	values := make(map[string]any)
	for range n {
		key, err := d.value(depth + 1)
		if err != nil {
			return nil, err
		}
		if values[fmt.Sprint(key)], err = d.value(depth + 1); err != nil {
			return nil, err
		}
	}
	return values, nil
}
