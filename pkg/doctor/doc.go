// Package doctor tells, before a big job, whether it would work: it has every node gather facts, brings them together
// as a run does, through the share, and judges them. The judgements are pure functions of the facts.
package doctor
