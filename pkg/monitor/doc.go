// Package monitor asks the GPU monitors that a site may run on its nodes, gpud and DCGM's host engine, for what they
// know already. Nobody needs them: one that is not there, or does not answer at once, is no fault of the node's.
package monitor
