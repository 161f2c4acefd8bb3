package audit

const SubscriptionBytes = subscriptionBytes

var Memory = memory
