package web

import "sync"

// Hub tells open event streams that something has changed. It carries topics
// and no content: a subscriber renders what is true now. Publications that come
// while a subscriber is busy coalesce into one. The zero value is not usable.
type Hub struct {
	mu     sync.Mutex
	topics map[string]map[*Subscription]struct{}
}

// NewHub returns an empty hub.
func NewHub() *Hub {
	return &Hub{topics: map[string]map[*Subscription]struct{}{}}
}

// Subscription receives on C after each publication of its topics.
type Subscription struct {
	C      <-chan struct{}
	c      chan struct{}
	hub    *Hub
	topics []string
}

// Subscribe starts listening to the topics. Close it after use.
func (h *Hub) Subscribe(topics ...string) *Subscription {
	c := make(chan struct{}, 1)
	s := &Subscription{C: c, c: c, hub: h, topics: topics}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range topics {
		if h.topics[t] == nil {
			h.topics[t] = map[*Subscription]struct{}{}
		}
		h.topics[t][s] = struct{}{}
	}
	return s
}

// Publish wakes the subscribers of the topic. It never blocks.
func (h *Hub) Publish(topic string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.topics[topic] {
		select {
		case s.c <- struct{}{}:
		default:
		}
	}
}

// PublishAll wakes every subscriber: after a time in which publications may
// have been missed.
func (h *Hub) PublishAll() {
	h.mu.Lock()
	topics := make([]string, 0, len(h.topics))
	for t := range h.topics {
		topics = append(topics, t)
	}
	h.mu.Unlock()
	for _, t := range topics {
		h.Publish(t)
	}
}

// Close ends the subscription. Closing twice is allowed.
func (s *Subscription) Close() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	for _, t := range s.topics {
		delete(s.hub.topics[t], s)
		if len(s.hub.topics[t]) == 0 {
			delete(s.hub.topics, t)
		}
	}
}
