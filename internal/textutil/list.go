package textutil

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/xrash/smetrics"
)

// MapSlice returns what a function returns for each element of a list; nil if the list has none.
func MapSlice[T, U any](all []T, to func(T) U) (out []U) {
	for _, one := range all {
		out = append(out, to(one))
	}
	return out
}

// JoinEach joins the texts that a function returns for each element of a list.
func JoinEach[T any](all []T, separator string, of func(T) string) string {
	return strings.Join(MapSlice(all, of), separator)
}

// JoinLimited joins parts with a separator. If there are more parts than the given limit, it adds
// only the number of the others: "a; b; and 3 more".
func JoinLimited(parts []string, limit int, separator string) string {
	if more := len(parts) - limit; more > 0 {
		parts = append(slices.Clone(parts[:limit]), fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, separator)
}

// FormatRanges formats sorted numbers with consecutive numbers as ranges: 1-3,7.
func FormatRanges(numbers []int) string {
	var parts []string
	for start := 0; start < len(numbers); {
		end := start
		for end+1 < len(numbers) && numbers[end+1] == numbers[end]+1 {
			end++
		}
		part := strconv.Itoa(numbers[start])
		if end > start {
			part += "-" + strconv.Itoa(numbers[end])
		}
		parts = append(parts, part)
		start = end + 1
	}
	return strings.Join(parts, ",")
}

// ParseRanges parses numbers in the format of FormatRanges, which the kernel also uses: 0-3,8; an
// empty text has none. It returns them sorted, without duplicates. A number above the limit is an
// error, and more numbers than there are up to the limit.
func ParseRanges(list string, limit int) ([]int, error) {
	list = strings.TrimSpace(list)
	if list == "" {
		return nil, nil
	}
	var numbers []int
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err1 := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		isOrdered := from >= 0 && from <= to && to <= limit && len(numbers)+to-from <= limit
		if cmp.Or(err1, err2) != nil || !isOrdered {
			return nil, fmt.Errorf("cannot read the list %q: %q is neither a number nor a "+
				"range up to %d, each given once, as in 0-3,8", TruncateText(list, 80), part, limit)
		}
		for n := from; n <= to; n++ {
			numbers = append(numbers, n)
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(numbers))), nil
}

// FormatIndices formats sorted indices after a noun: "rank 3", "ranks 1-3,7".
func FormatIndices(noun string, indices []int) string {
	return PluralForm(len(indices), noun) + " " + FormatRanges(indices)
}

// NearestWord returns the known word of which a word is most likely a typing error. It returns an
// empty string if none differs by fewer than limit edits of a single byte.
func NearestWord(word string, known []string, limit int) (nearest string) {
	for _, name := range known {
		if edits := smetrics.WagnerFischer(word, name, 1, 1, 1); edits < limit {
			nearest, limit = name, edits
		}
	}
	return nearest
}

// QuoteShellWord quotes a word for a shell.
func QuoteShellWord(word string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+,:@="
	if word != "" && !strings.ContainsFunc(word, func(r rune) bool { return !strings.ContainsRune(plain, r) }) {
		return word
	}
	if strings.ContainsFunc(word, func(r rune) bool { return !unicode.IsPrint(r) }) || !utf8.ValidString(word) {
		return quoteANSI(word)
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// QuotePOSIXWord quotes a word for any POSIX shell, unchanged and not for a terminal.
func QuotePOSIXWord(word string) string {
	if QuoteShellWord(word) == word {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// quoteANSI quotes a word as $'…', without anything that a terminal would execute.
func quoteANSI(word string) string {
	var b strings.Builder
	b.WriteString("$'")
	for _, c := range []byte(word) {
		switch {
		case c == '\'' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c > '~':
			fmt.Fprintf(&b, `\x%02x`, c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String() + "'"
}

// FormatCommand formats a command that can be pasted into a shell.
func FormatCommand(argv ...string) string {
	words := make([]string, len(argv))
	for i, word := range argv {
		words[i] = QuoteShellWord(word)
	}
	return strings.Join(words, " ")
}
