package flightrecorder

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Instructions of pickles for plain data: those that torch's own writer uses (protocol 2), and those
// that Python's pickle writes for the same data up to protocol 5.
const (
	opMark            = '('
	opStop            = '.'
	opPop             = '0'
	opPopMark         = '1'
	opNone            = 'N'
	opBinInt          = 'J'
	opBinInt1         = 'K'
	opBinInt2         = 'M'
	opBinFloat        = 'G'
	opBinUnicode      = 'X'
	opShortUnicode    = 0x8c
	opBinUnicode8     = 0x8d
	opBinBytes        = 'B'
	opShortBytes      = 'C'
	opEmptyList       = ']'
	opAppend          = 'a'
	opAppends         = 'e'
	opEmptyDict       = '}'
	opSetItem         = 's'
	opSetItems        = 'u'
	opEmptyTuple      = ')'
	opTuple           = 't'
	opTuple1          = 0x85
	opTuple2          = 0x86
	opTuple3          = 0x87
	opNewTrue         = 0x88
	opNewFalse        = 0x89
	opLong1           = 0x8a
	opProto           = 0x80
	opFrame           = 0x95
	opMemoize         = 0x94
	opBinPut          = 'q'
	opLongBinPut      = 'r'
	opBinGet          = 'h'
	opLongBinGet      = 'j'
	maxPickleProtocol = 5
)

// maxValues is the maximum number of values in a pickle: a dump of 20,000 collectives has 2 million.
const maxValues = 20_000_000

// list is a list or a tuple. A pickle may refer to it before it is complete.
type list struct{ items []any }

// dict is a dictionary. Values with keys that are not texts or whole numbers are left out.
type dict struct{ values map[any]any }

// mark is the value of the instruction MARK on the stack.
type mark struct{}

// pickleReader interprets a pickle. The values are nil, bool, int64, float64, string, *list and *dict.
type pickleReader struct {
	data   []byte
	at     int
	stack  []any
	memo   map[uint32]any
	values int
}

// errTruncated reports that a pickle ends within an instruction.
var errTruncated = errors.New("the file ends early")

// decodePickle returns the value of a pickle that consists of plain data. It refuses all others.
func decodePickle(data []byte) (any, error) {
	r := &pickleReader{data: data, memo: make(map[uint32]any)}
	for {
		code, err := r.take(1)
		if err != nil {
			return nil, err
		}
		if code[0] == opStop {
			return r.pop()
		}
		if err := r.execute(code[0]); err != nil {
			return nil, fmt.Errorf("cannot read the pickle at byte %d: %w", r.at-1, err)
		}
		if r.values++; r.values > maxValues {
			return nil, fmt.Errorf("it has more than %d values", maxValues)
		}
	}
}

// take returns the next n bytes.
func (r *pickleReader) take(n uint64) ([]byte, error) {
	if n > uint64(len(r.data)-r.at) {
		return nil, errTruncated
	}
	part := r.data[r.at : r.at+int(n)] //nolint:gosec // at most the length of data
	r.at += int(n)                     //nolint:gosec // the same
	return part, nil
}

// number returns an unsigned number of the given size.
func (r *pickleReader) number(size uint64) (uint64, error) {
	part, err := r.take(size)
	if err != nil {
		return 0, err
	}
	var padded [8]byte
	copy(padded[:], part)
	return binary.LittleEndian.Uint64(padded[:]), nil
}

func (r *pickleReader) push(value any) { r.stack = append(r.stack, value) }

func (r *pickleReader) pop() (any, error) {
	if len(r.stack) == 0 {
		return nil, errors.New("its stack is empty")
	}
	value := r.stack[len(r.stack)-1]
	r.stack = r.stack[:len(r.stack)-1]
	if _, is := value.(mark); is {
		return nil, errors.New("a mark is in the wrong place")
	}
	return value, nil
}

// popToMark returns the values above the last mark, and removes both.
func (r *pickleReader) popToMark() ([]any, error) {
	for i, value := range slices.Backward(r.stack) {
		if _, is := value.(mark); is {
			above := append([]any(nil), r.stack[i+1:]...)
			r.stack = r.stack[:i]
			return above, nil
		}
	}
	return nil, errors.New("a mark is missing")
}

// popTuple makes a tuple of the last n values.
func (r *pickleReader) popTuple(n int) error {
	if len(r.stack) < n {
		return errors.New("its stack is empty")
	}
	items := append([]any(nil), r.stack[len(r.stack)-n:]...)
	for _, item := range items {
		if _, is := item.(mark); is {
			return errors.New("a mark is in the wrong place")
		}
	}
	r.stack = r.stack[:len(r.stack)-n]
	r.push(&list{items})
	return nil
}

// execute executes one instruction.
func (r *pickleReader) execute(code byte) error {
	switch code {
	case opProto:
		version, err := r.number(1)
		if err == nil && version > maxPickleProtocol {
			err = fmt.Errorf("its protocol is %d, which is newer than %d", version, maxPickleProtocol)
		}
		return err
	case opFrame:
		_, err := r.take(8)
		return err
	case opMark:
		r.push(mark{})
	case opPop, opPopMark:
		return r.discard(code)
	case opNone:
		r.push(nil)
	case opNewTrue, opNewFalse:
		r.push(code == opNewTrue)
	case opBinInt, opBinInt1, opBinInt2, opLong1, opBinFloat:
		return r.pushNumber(code)
	case opBinUnicode, opShortUnicode, opBinUnicode8, opBinBytes, opShortBytes:
		return r.pushText(code)
	case opEmptyList, opEmptyTuple:
		r.push(new(list))
	case opEmptyDict:
		r.push(&dict{make(map[any]any)})
	case opTuple:
		items, err := r.popToMark()
		if err == nil {
			r.push(&list{items})
		}
		return err
	case opTuple1, opTuple2, opTuple3:
		return r.popTuple(int(code) - opTuple1 + 1)
	case opAppend, opAppends:
		return r.appendItems(code)
	case opSetItem, opSetItems:
		return r.setItems(code)
	case opMemoize, opBinPut, opLongBinPut:
		return r.memoize(code)
	case opBinGet, opLongBinGet:
		return r.recall(code)
	default:
		return fmt.Errorf("the instruction %#x is not for plain data", code)
	}
	return nil
}

// discard removes the last value, or all values above the last mark.
func (r *pickleReader) discard(code byte) (err error) {
	if code == opPop {
		_, err = r.pop()
	} else {
		_, err = r.popToMark()
	}
	return err
}

// pushNumber pushes a number. A whole number of more than 8 bytes is refused.
func (r *pickleReader) pushNumber(code byte) error {
	switch code {
	case opBinFloat:
		part, err := r.take(8)
		if err == nil {
			r.push(math.Float64frombits(binary.BigEndian.Uint64(part)))
		}
		return err
	case opLong1:
		size, err := r.number(1)
		if err != nil || size > 8 {
			return errors.Join(err, errors.New("a number is too large"))
		}
		value, err := r.number(size)
		if shift := 64 - 8*size; err == nil && size > 0 {
			value = uint64(int64(value<<shift) >> shift) //nolint:gosec // the sign is extended
		}
		r.push(int64(value)) //nolint:gosec // the same bits
		return err
	}
	size := map[byte]uint64{opBinInt: 4, opBinInt1: 1, opBinInt2: 2}[code]
	value, err := r.number(size)
	if code == opBinInt {
		r.push(int64(int32(value))) //nolint:gosec // the same bits
	} else {
		r.push(int64(value)) //nolint:gosec // at most 2 bytes
	}
	return err
}

// pushText pushes a text or bytes.
func (r *pickleReader) pushText(code byte) error {
	width := map[byte]uint64{opBinUnicode: 4, opBinBytes: 4, opShortUnicode: 1, opShortBytes: 1, opBinUnicode8: 8}[code]
	size, err := r.number(width)
	if err != nil {
		return err
	}
	text, err := r.take(size)
	if err == nil {
		r.push(string(text))
	}
	return err
}

// appendItems appends one or several values to the list below them.
func (r *pickleReader) appendItems(code byte) error {
	var items []any
	var err error
	if code == opAppends {
		items, err = r.popToMark()
	} else {
		var item any
		item, err = r.pop()
		items = []any{item}
	}
	if err != nil {
		return err
	}
	if len(r.stack) == 0 {
		return errors.New("its stack is empty")
	}
	to, is := r.stack[len(r.stack)-1].(*list)
	if !is {
		return errors.New("items are appended to something else than a list")
	}
	to.items = append(to.items, items...)
	return nil
}

// setItems sets one or several values of the dictionary below them.
func (r *pickleReader) setItems(code byte) error {
	var pairs []any
	var err error
	if code == opSetItems {
		pairs, err = r.popToMark()
	} else {
		if err = r.popTuple(2); err == nil {
			pair, _ := r.pop()
			pairs = pair.(*list).items
		}
	}
	if err != nil {
		return err
	}
	if len(r.stack) == 0 || len(pairs)%2 != 0 {
		return errors.New("a dictionary is incomplete")
	}
	to, is := r.stack[len(r.stack)-1].(*dict)
	if !is {
		return errors.New("values are set in something else than a dictionary")
	}
	for i := 0; i < len(pairs); i += 2 {
		switch key := pairs[i].(type) {
		case string, int64:
			to.values[key] = pairs[i+1]
		}
	}
	return nil
}

// memoize remembers the last value.
func (r *pickleReader) memoize(code byte) error {
	index, err := uint64(len(r.memo)), error(nil)
	switch code {
	case opBinPut:
		index, err = r.number(1)
	case opLongBinPut:
		index, err = r.number(4)
	}
	if err != nil {
		return err
	}
	if len(r.stack) == 0 {
		return errors.New("its stack is empty")
	}
	r.memo[uint32(index)] = r.stack[len(r.stack)-1] //nolint:gosec // at most 4 bytes, or the number of values
	return nil
}

// recall pushes a remembered value.
func (r *pickleReader) recall(code byte) error {
	size := uint64(1)
	if code == opLongBinGet {
		size = 4
	}
	index, err := r.number(size)
	if err != nil {
		return err
	}
	value, known := r.memo[uint32(index)] //nolint:gosec // at most 4 bytes
	if !known {
		return fmt.Errorf("value %d is not known", index)
	}
	r.push(value)
	return nil
}
