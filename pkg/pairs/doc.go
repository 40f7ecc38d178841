// Package pairs has the nodes of a job transfer data in pairs, each node with another partner in each round, and tells who
// is slow: who is so with several partners, while they are not with others. Schedule and judgement are pure functions.
//
// The idea is that of DLRover's network check, which pairs the nodes twice and takes for a straggler who was slow in both
// rounds (NetworkCheckRendezvousManager in dlrover/python/master/elastic_training/rdzv_manager.py). It chooses the second
// partners by the figures of the first round, for which its master has to be asked; here each node knows all its partners
// from the number of the nodes alone.
package pairs
